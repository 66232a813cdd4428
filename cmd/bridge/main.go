// Command bridge delivers messages to a broker when they are due. It runs the
// bridge, and schedules, shows and changes what waits. `bridge --help` lists its
// commands; each has a help of its own, with an example.
package main

import (
	"os"

	"github.com/delaybridge/delaybridge/internal/command"
)

// release is set with -ldflags "-X main.release=v1.2.3" where Go sees no repository to
// read the version from, as in a container that is built.
var release string

func main() { os.Exit(command.Main(release)) }
