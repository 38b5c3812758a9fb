"""Tokenizer, chat templates and streamed text."""
