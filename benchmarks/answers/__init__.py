"""How each library is asked; one library a module, imported only in a process of its own."""
