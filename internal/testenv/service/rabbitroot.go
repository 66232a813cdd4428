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

// rabbitChroot is what the command begins with.
func rabbitChroot() []string {
	if root := os.Getenv(rabbitRootEnv); root != "" {
		return []string{"chroot", root}
	}
	return nil
}

func exists(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: %s", ErrMissing, path)
	}
	return nil
}
