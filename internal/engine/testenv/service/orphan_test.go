package service_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// childEnv makes this test binary start servers and wait to be killed.
const childEnv = "DELAYBRIDGE_TESTENV_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
	}
	goleak.VerifyTestMain(m)
}

var all = []struct {
	name  string
	start func(context.Context) (*service.Server, error)
}{
	{"redis", func(ctx context.Context) (*service.Server, error) { return service.StartRedis(ctx) }},
	{"nats", func(ctx context.Context) (*service.Server, error) { return service.StartNATS(ctx, "") }},
	{"rabbitmq", func(ctx context.Context) (*service.Server, error) { return service.StartRabbitMQ(ctx, "") }},
	{"kafka", func(ctx context.Context) (*service.Server, error) { return service.StartKafka(ctx, "") }},
	{"mariadb", func(ctx context.Context) (*service.Server, error) { return service.StartMariaDB(ctx, "") }},
	{"postgres", func(ctx context.Context) (*service.Server, error) { return service.StartPostgres(ctx, "") }},
}

// runChild starts one server of each kind, the last one paused, since its
// processes are in several sessions and cannot see the end of their leader, says where
// they are and never returns.
func runChild() {
	for i, kind := range all {
		server, err := kind.start(context.Background())
		if err == nil && i == len(all)-1 {
			err = server.Pause()
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(server.Dir())
	}
	runtime.GC() // forgotten servers must live on
	fmt.Println("ready")
	select {}
}

func TestServersDieWithAKilledProcess(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0]) // the same binary, see TestMain
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()

	var dirs []string
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		require.NotContains(t, lines.Text(), "error:")
		dirs = append(dirs, lines.Text())
	}
	require.Len(t, dirs, len(all))
	for _, dir := range dirs {
		require.NotEmpty(t, processesIn(dir), "the check must be able to see them")
	}

	require.NoError(t, child.Process.Kill())
	for _, dir := range dirs {
		require.Eventually(t, func() bool { return len(processesIn(dir)) == 0 },
			10*time.Second, 20*time.Millisecond, "processes of %s", dir)
		require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) },
			10*time.Second, 20*time.Millisecond, "scratch folder %s", dir)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range all {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			server, err := kind.start(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, processesIn(server.Dir()))
			server.Close()
			require.Eventually(t, func() bool { return len(processesIn(server.Dir())) == 0 }, // What it had started ends by itself.
				10*time.Second, 20*time.Millisecond)
			require.NoDirExists(t, server.Dir())
		})
	}
}

// processesIn lists the live processes that work in the folder or have it in
// their environment or arguments; a zombie has none of these.
func processesIn(dir string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if strings.Contains(cwd+string(env)+string(args), dir) {
			found = append(found, proc+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}
