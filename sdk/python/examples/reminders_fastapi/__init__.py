"""Reminders, each of which comes at its time, unless it is moved or cancelled."""
