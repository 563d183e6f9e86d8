"""How good the default fit is: tables and bags, cut into groups, learned by the default and by single methods."""
