"""Push: a subscription that is delivered by HTTP."""
