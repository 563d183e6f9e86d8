"""What published counts are worth: exact, rounded, suppressed and noisy ones, learned from in three ways."""
