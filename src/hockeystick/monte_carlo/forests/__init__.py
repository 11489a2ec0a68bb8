"""Binary trees: sums over all participations and draws from the roots down, for families whose columns are trees."""
