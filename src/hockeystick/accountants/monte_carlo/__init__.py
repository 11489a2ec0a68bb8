"""Monte Carlo accounting: bounds on a profile from weighted samples, with a proved failure probability."""
