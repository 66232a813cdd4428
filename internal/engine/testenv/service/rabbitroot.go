package service

import (
	"fmt"
	"os"
)

// rabbitRootEnv names the root folder of another system, whose RabbitMQ is to
// run, in a chroot. There the folder's own path must be a symbolic link to "/",
// and the temporary folder (TMPDIR) must be inside, so that every path means the
// same on both sides; scripts/matrix.sh sees to both.
const rabbitRootEnv = "DELAYBRIDGE_TEST_RABBITMQ_ROOT"

const rootMapper = "/usr/bin/epmd"

// rabbitInRoot runs a command in a chroot that has /proc: without it the
// server knows neither its memory nor the free disk, and raises no alarm. The
// mount is seen by the server's processes alone and goes with the last of them.
const rabbitInRoot = `
mount --rbind /proc "$1/proc" || exit
exec chroot "$@"
`

// rabbitChroot is what the command begins with. Each step becomes the next one,
// so that signals reach the server.
func rabbitChroot() []string {
	if root := os.Getenv(rabbitRootEnv); root != "" {
		return []string{"unshare", "--mount", "sh", "-c", rabbitInRoot, "sh", root}
	}
	return nil
}

func exists(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: %s", ErrMissing, path)
	}
	return nil
}
