"""When a job will start: its wait, from the queue, the request and what runs."""
