"""What operators of streams ask: how far behind, how long until it is too late, what will a restart do."""
