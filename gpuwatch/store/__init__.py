"""History, alert memory, outbox."""
