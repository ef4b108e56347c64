"""What takes messages: an Alertmanager, a webhook, a mail server."""
