"""Drafts accepted a round, of many replies: the mean and how far it may be off."""


def accepted(replies):
    """[(rounds, accepted)] of replies -> accepted a round, half the width of its 95 % interval. A reply's rounds belong
    together, so replies are what is drawn."""
    rounds, n = sum(r for r, _ in replies), len(replies)
    if rounds == 0 or n < 2:
        return 0.0, float("inf")
    mean = sum(a for _, a in replies) / rounds
    spread = sum((a - mean * r) ** 2 for r, a in replies) * n / (n - 1)
    return mean, 1.96 * spread**0.5 / rounds
