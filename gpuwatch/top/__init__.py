"""What a person sees in a terminal; comes with a later release."""
