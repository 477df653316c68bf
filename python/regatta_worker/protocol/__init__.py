"""Requests and replies, and the words for what cannot be done."""
