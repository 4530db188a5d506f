"""One file a kind of receiver."""
