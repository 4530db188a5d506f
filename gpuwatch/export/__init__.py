"""What Prometheus and other programs see."""
