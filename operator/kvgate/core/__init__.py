"""The judgement: pure, total, without clock or logging."""
