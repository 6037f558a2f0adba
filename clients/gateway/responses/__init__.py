"""OpenAI's Responses API: a response is a turn."""
