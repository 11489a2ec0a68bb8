"""Laws of likelihood ratios: discretised to one side, composed, and turned into profiles, with proved rounding."""
