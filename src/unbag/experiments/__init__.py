"""The paper's experiments: its tables as data, the trials that they ask for, and what came out of them."""
