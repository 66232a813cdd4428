package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The package's own script: Debian's /usr/sbin wrapper insists on its system
// user and folders.
const rabbitScript = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// rabbitRunner runs a port mapper of our own in the server's process group,
// because the one that Erlang starts by itself becomes a daemon and outlives
// everything. The mapper does not hold pipe 4: its life says nothing about the
// server's.
const rabbitRunner = `
"$2" 4>&- >/dev/null &
n=0
while [ "$n" -lt 100 ] && ! "$2" -names >/dev/null 2>&1; do sleep 0.02; n=$((n+1)); done
exec "$1"
`

// pluginsLine lets a caller ask for plugins, which rabbitmq.conf cannot name.
var pluginsLine = regexp.MustCompile(`(?m)^# plugins: (.+)$`)

// StartRabbitMQ runs one RabbitMQ node; extraConfig is appended to its
// rabbitmq.conf, where a line "# plugins: a b" enables plugins.
func StartRabbitMQ(ctx context.Context, extraConfig string) (*Server, error) {
	script, mapper, err := rabbitPrograms()
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "rabbitmq")
	if err != nil {
		return nil, err
	}
	mapperPort, freeMapper, err := ReservePort()
	if err != nil {
		return s.abandon(err)
	}
	distPort, freeDist, err := ReservePort()
	if err != nil {
		freeMapper()
		return s.abandon(err)
	}
	freePort := s.free
	s.free = func() { freePort(); freeMapper(); freeDist() }

	s.url = "amqp://guest:guest@" + s.Addr() + "/"
	s.argv = append(rabbitChroot(), "sh", "-c", rabbitRunner, "sh", script, mapper)
	plugins := pluginsOf(extraConfig)
	erlang, fewer, err := s.rabbitPaths(script, mapper, plugins)
	if err != nil {
		return s.abandon(fmt.Errorf("lay out RabbitMQ: %w", err))
	}
	s.env = append(append(s.env, s.rabbitEnv(mapperPort, distPort, erlang)...), fewer...)
	if err := s.rabbitFiles(plugins, extraConfig); err != nil {
		return s.abandon(fmt.Errorf("write RabbitMQ configuration: %w", err))
	}
	// The listeners open one after the other, that for TLS last: only the log
	// says that all are open. They close the connection of whoever does not
	// begin with the protocol's header.
	s.ready = func(ctx context.Context, started int64) error {
		if err := logHas(s.dir, started, "Server startup complete"); err != nil {
			return err
		}
		return exchange(ctx, s.Addr(), []byte("AMQP\x00\x00\x09\x01"), []byte{1})
	}
	return s.start(ctx)
}

func rabbitPrograms() (script, mapper string, err error) {
	if root := os.Getenv(rabbitRootEnv); root != "" {
		script, mapper = filepath.Join(root, rabbitScript), filepath.Join(root, rootMapper)
		return script, mapper, errors.Join(exists(script), exists(mapper))
	}
	script = rabbitScript
	if _, err := os.Stat(script); err != nil {
		return "", "", fmt.Errorf("%w: %s", ErrMissing, script)
	}
	mapper, err = exec.LookPath("epmd")
	if err != nil {
		return "", "", fmt.Errorf("%w: epmd of Erlang", ErrMissing)
	}
	return script, mapper, nil
}

// rabbitPaths lets a node look for a module where it is. Otherwise it looks into the folder of each plugin for
// each module of Erlang, 50,000 times, which takes half of the processor time of its start. It returns arguments
// of Erlang and variables of the server; none for a server in another root.
func (s *Server) rabbitPaths(script, mapper string, plugins []string) (erlang string, env []string, err error) {
	if os.Getenv(rabbitRootEnv) != "" {
		return "", nil, nil
	}
	script, errScript := filepath.EvalSymlinks(script)
	mapper, errMapper := filepath.EvalSymlinks(mapper)
	if err := errors.Join(errScript, errMapper); err != nil {
		return "", nil, err
	}
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(script), "../plugins/*-*"))
	if err != nil {
		return "", nil, err
	}
	needed, err := neededOf(folders, append(plugins, "rabbit"))
	if err != nil {
		return "", nil, err
	}
	libraries := filepath.Join(s.dir, "plugins")
	if err := os.Mkdir(libraries, 0o700); err != nil {
		return "", nil, err
	}
	for _, folder := range needed {
		if err := os.Symlink(folder, filepath.Join(libraries, filepath.Base(folder))); err != nil {
			return "", nil, err
		}
	}
	own, err := filepath.Glob(filepath.Join(filepath.Dir(mapper), "../../lib/*/ebin"))
	for _, folder := range own {
		erlang += " -pa " + folder
	}
	return erlang, []string{"RABBITMQ_PLUGINS_DIR=" + libraries}, err
}

var erlangWord = regexp.MustCompile(`\w+`)

// neededOf are the folders of these applications and of all that they name in their descriptions, which say what
// each depends on.
func neededOf(folders, applications []string) (needed []string, err error) {
	folderOf := map[string]string{}
	for _, folder := range folders {
		name, _, _ := strings.Cut(filepath.Base(folder), "-")
		folderOf[name] = folder
	}
	for left := applications; len(left) > 0; left = left[1:] {
		name := left[0]
		folder, isNew := folderOf[name]
		if !isNew {
			continue // It is Erlang's own, or has been seen.
		}
		delete(folderOf, name)
		needed = append(needed, folder)
		description, err := os.ReadFile(filepath.Join(folder, "ebin", name+".app"))
		if err != nil {
			return nil, err
		}
		left = append(left, erlangWord.FindAllString(string(description), -1)...)
	}
	return needed, nil
}

func (s *Server) rabbitEnv(mapperPort, distPort int, erlang string) []string {
	in := func(name string) string { return filepath.Join(s.dir, name) }
	return []string{
		"HOME=" + s.dir, // Erlang makes its cookie there
		"RABBITMQ_NODENAME=delaybridge-" + strconv.Itoa(s.port) + "@localhost",
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_CONF_ENV_FILE=" + in("none"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + in("data"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(distPort),
		"ERL_EPMD_PORT=" + strconv.Itoa(mapperPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP_SECONDS=0",
		// With this the script becomes the Erlang machine instead of waiting
		// for it, so that SIGTERM reaches the server itself.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_START_ARGS=-noinput",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +A 8 +sbwt none +sbwtdcpu none +sbwtdio none" + erlang,
	}
}

// pluginsOf are those that a configuration asks for.
func pluginsOf(extraConfig string) []string {
	if found := pluginsLine.FindStringSubmatch(extraConfig); found != nil {
		return strings.Fields(found[1])
	}
	return nil
}

func (s *Server) rabbitFiles(plugins []string, extraConfig string) error {
	err := os.WriteFile(filepath.Join(s.dir, "enabled_plugins"), []byte("["+strings.Join(plugins, ",")+"].\n"), 0o600)
	if err != nil {
		return err
	}
	config := "listeners.tcp.1 = " + s.Addr() + `
loopback_users = none
disk_free_limit.absolute = 50MB
log.console = true
log.console.level = info
log.file = false
` + extraConfig + "\n"
	return os.WriteFile(filepath.Join(s.dir, "rabbitmq.conf"), []byte(config), 0o600)
}
