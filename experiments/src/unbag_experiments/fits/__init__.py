"""How accurate and how fast the default fit is: tables in groups, by default and by single methods."""
