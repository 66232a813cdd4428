#!/bin/sh
# Tells systemd to read the unit again after it was installed, changed or removed.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
