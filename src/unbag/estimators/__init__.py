"""scikit-learn estimators, and the single place where their defaults are decided."""
