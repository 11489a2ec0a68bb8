"""The explorer: a page on this machine that answers plans while its sliders move, and the small server behind it."""
