"""What can be seen from outside: derived from what the client decided and did, never asked for by core."""
