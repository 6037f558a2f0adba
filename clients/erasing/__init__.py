"""The erasure of a data subject: what is open is ended, its key destroyed, and a receipt made."""
