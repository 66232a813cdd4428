#!/bin/sh
# Stops the bridge, which drains, before its package is removed. An upgrade leaves it
# running. deb says "remove" or "upgrade", rpm the number of versions left.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now delaybridge.service || true
fi
