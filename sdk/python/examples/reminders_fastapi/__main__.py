"""Starts all of it, to try it out: run.sh."""

import signal
from contextlib import suppress

import uvicorn

from .app import create_app
from .surroundings import surroundings

signal.signal(signal.SIGTERM, signal.default_int_handler)  # It is to clean up, too.
with suppress(KeyboardInterrupt), surroundings() as around:
    print(
        f"""
Make a reminder, let an hour pass, and see that somebody was reminded:

  curl http://127.0.0.1:8090/reminders -H 'Content-Type: application/json' \\
    -d "{{\\"text\\": \\"call Ann\\", \\"due_at\\": \\"$(date -u -d '30 minutes' +%FT%TZ)\\"}}"
  curl -X POST {around.bridge}/dev/clock/advance -d '{{"by": "1h"}}'
  curl http://127.0.0.1:8090/reminders/ID

The API is described at http://127.0.0.1:8090/docs. Ctrl-C ends it.
""",
        flush=True,
    )
    uvicorn.run(create_app(around.dsn, around.nats), port=8090, log_level="warning")
