package docs_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/test/trial"
)

// binary is the bridge that a reader has installed.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "delaybridge-docs-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		binary, err = trial.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Why a command cannot be typed here.
const (
	needsModule     = "it fetches a release of ours"
	needsDocker     = "it needs Docker and its images; test/thirdparty/deploy reads the compose file"
	needsKubernetes = "it needs a Kubernetes; test/thirdparty/deploy renders the chart"
	needsHost       = "it changes the machine; test/thirdparty/deploy reads unit and package"
	needsRelease    = "it needs the files of a release"
	isThisTest      = "it runs this test"
	needsCollector  = "it needs a collector; test/tracing has one"
	needsClient     = "it needs a client of the broker; internal/inlet has one of each"
	needsIssuer     = "it needs an issuer; test/thirdparty/identity has one"
	needsOrigin     = "it needs what people move from; test/thirdparty/bench/migrate has it"
	needsNode       = "it needs Node and its registry; make sdk-typescript packs and installs"
	needsPython     = "it needs Python and its registry; make sdk-python starts the same"
	needsMaven      = "it needs a JDK, Maven and its registry; make sdk-java installs and starts"
	needsRedis      = "it needs a Redis that anybody may change; internal/sinks/redis and internal/grants have one"
)

// untyped are the commands that cannot be typed here, by page and reason: the first line of
// each.
var untyped = map[string]map[string][]string{
	"README.md": {
		isThisTest:  {"make test"},
		needsModule: {"go get github.com/delaybridge/delaybridge/delay"},
	},
	"docs/deploy.md": {
		needsDocker: {
			"docker compose up -d --wait",
			"docker compose --profile brokers up -d --wait",
			"docker compose --profile bridge up -d --build --wait",
			"docker compose logs -f consumer",
			"docker compose --profile '*' down --volumes",
		},
		needsHost: {
			"apt install ./delaybridge_0.1.0_linux_amd64.deb",
			"delaybridge check --config /etc/delaybridge/bridge.yaml",
			"systemctl enable --now delaybridge",
			"install -m 0755 bridge /usr/local/bin/bridge",
			"install -d -m 0755 /etc/delaybridge && install -d -m 0700 /etc/delaybridge/secrets",
			"install -m 0644 bridge.yaml /etc/delaybridge/bridge.yaml",
			"install -m 0600 redis-password /etc/delaybridge/secrets/redis",
			"install -m 0644 deploy/systemd/delaybridge.service /etc/systemd/system/",
			"systemctl daemon-reload && systemctl enable --now delaybridge",
		},
		needsKubernetes: {
			"kubectl create secret generic delaybridge-redis --from-file=password=redis-password",
			"helm install delaybridge deploy/helm/delaybridge --values values.yaml",
			"helm test delaybridge --logs",
			"kubectl port-forward deploy/delaybridge 8080",
			"kubectl exec deploy/delaybridge -- /bridge stats --config /etc/delaybridge/bridge.yaml",
			"kubectl apply -f deploy/kubernetes/delaybridge.yaml",
		},
	},
	"docs/autoscaling.md": {
		needsKubernetes: {
			"kubectl create secret generic delaybridge-scaler --namespace shop --from-file=token=scaler-token",
			"kubectl apply -f deploy/kubernetes/keda.yaml",
		},
	},
	"docs/operations.md": {
		needsCollector: {"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 OTEL_SERVICE_NAME=delaybridge bridge run --config bridge.yaml"},
	},
	"docs/identity.md": {needsIssuer: {`curl http://127.0.0.1:8080/api/v1/queues -H "Authorization: Bearer $JWT"`}},
	"docs/inlet.md": {
		needsClient: {
			"kafka-topics.sh --bootstrap-server 127.0.0.1:9092 --create --topic delay.commands --partitions 8",
			`printf 'delay-id:order-42/timeout,delay-in:30m\torder-42\t{"order": 42}\n' | kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic delay.commands --property parse.headers=true --property parse.key=true`,
			"nats stream add DELAY --subjects 'delay.commands' --defaults",
			`nats pub delay.commands '{"order": 42}' -H delay-id:order-42/timeout -H delay-in:30m`,
		},
	},
	"docs/migrate/asynq.md": {
		needsOrigin: {
			"bridge import asynq --config bridge.yaml --queue orders --topic-map order:timeout=order.timeout --dry-run",
			"bridge import asynq --config bridge.yaml --queue orders --topic-map order:timeout=order.timeout",
		},
	},
	"docs/migrate/bullmq.md": {
		needsOrigin: {
			"bridge import bullmq --config bridge.yaml --queue orders --bullmq-queue orders --topic-map order.timeout=order.timeout --dry-run",
			"bridge import bullmq --config bridge.yaml --queue orders --bullmq-queue orders --topic-map order.timeout=order.timeout",
		},
	},
	"docs/migrate/rabbitmq-plugin.md": {
		needsOrigin: {
			`rabbitmqctl eval "$(cat dump.erl)" | grep '^{' > waiting.jsonl`,
			"bridge schedule --config bridge.yaml --queue orders --batch waiting.jsonl",
		},
	},
	"docs/sdk/python.md": {needsModule: {"pip install ./sdk/python"}, needsPython: {"sdk/python/examples/reminders_fastapi/run.sh"}},
	"docs/sdk/typescript.md": {
		needsNode: {
			"(cd sdk/typescript && npm ci && npm pack)", "npm install ./sdk/typescript/delaybridge-0.1.0.tgz",
			"sdk/typescript/examples/retries-kafka/run.sh",
		},
	},
	"docs/sdk/java.md": {
		needsMaven: {"mvn -f sdk/java install -DskipTests", "sdk/java/examples/order-timeout-spring/run.sh"},
	},
	"docs/sinks/redis.md": {
		needsRedis: {
			"redis-cli XGROUP CREATE order.timeout billing '$' MKSTREAM",
			"redis-cli XREADGROUP GROUP billing consumer-1 COUNT 100 BLOCK 5000 STREAMS order.timeout '>'",
			"redis-cli XACK order.timeout billing 1790000000000-0",
			"redis-cli XTRIM order.timeout MINID 1790000000000-0",
			"redis-cli ACL SETUSER bridge on '>PASSWORD' '~order.*' +xadd +ping '+client|setname' +type +info '+config|get'",
		},
	},
	"docs/releases.md": {
		needsRelease: {
			"version=0.1.0",
			"workflow=https://github.com/delaybridge/delaybridge/.github/workflows/release.yml@refs/tags/v$version",
			"issuer=https://token.actions.githubusercontent.com",
			`cosign verify-blob --bundle checksums.txt.sigstore.json \`,
			"sha256sum --check --ignore-missing checksums.txt",
			`cosign verify --certificate-identity "$workflow" --certificate-oidc-issuer "$issuer" \`,
			"git clone --branch v0.1.0 https://github.com/delaybridge/delaybridge && cd delaybridge",
			`GOTOOLCHAIN=go1.26.8 CGO_ENABLED=0 GOOS=linux GOARCH=amd64 \`,
			"sha256sum bridge",
		},
		needsModule: {
			"go get github.com/delaybridge/delaybridge/delay@latest",
			"go install github.com/delaybridge/delaybridge/cmd/bridge@latest",
		},
	},
}

// worlds are what is there before a page is read, where that is more than an installed bridge.
var worlds = map[string]func(*shell){
	"docs/api.md":         (*shell).takesDeclarations,
	"docs/queues.md":      (*shell).takesDeclarations,
	"docs/autoscaling.md": (*shell).runsABridge,
	"docs/debounce.md":    (*shell).runsABridge,
	"docs/inlet.md":       (*shell).runsAtItsPort,
	"docs/recurring.md":   (*shell).runsABridge,
	"docs/check.md":       (*shell).hasFaults,
	"docs/encryption.md":  (*shell).runsABridge,
	"docs/operations.md":  (*shell).configured,
	"README.md":           (*shell).ownsServers,
	"docs/testing.md":     func(s *shell) { s.start(s.here("bridge dev --memory")) },
}

// configures writes bridge.yaml, for a Redis and the shared NATS.
func (s *shell) configures(redis string) {
	s.write("bridge.yaml", fmt.Sprintf(`
prefix: %s
redis: {url: %q}
queues:
  orders: {shards: 2, sink: events}
sinks:
  events: {type: nats, url: %q}
admin: {listen: "127.0.0.1:%s"}
`, testenv.Name(s.t, "docs"), redis, testenv.NATS(s.t), s.ports["8080"]))
}

// ownsServers has a Redis and a NATS at the usual ports, in what is shown of a configuration.
func (s *shell) ownsServers() {
	s.ports["6379"] = port(s.soundRedis().Addr())
	s.ports["4222"] = port(testenv.StartNATS(s.t, "").Addr())
	s.run("export DELAYBRIDGE__ADMIN__LISTEN=127.0.0.1:" + s.ports["8081"]) // At 8080 is bridge dev.
}

// soundRedis is one with which check finds nothing.
func (s *shell) soundRedis() *testenv.Server {
	redis := testenv.StartRedis(s.t, "--appendonly", "yes", "--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0")
	testenv.StartRedis(s.t, "--replicaof", "127.0.0.1 "+port(redis.Addr()))
	return redis
}

// hasFaults has a Redis that keeps nothing, which is at the usual port, and no stream.
func (s *shell) hasFaults() {
	redis := testenv.StartRedis(s.t)
	s.ports["6379"] = port(redis.Addr())
	s.configures(redis.URL())
}

// configured has a configuration with which check finds nothing.
func (s *shell) configured() {
	s.configures(s.soundRedis().URL())
}

// runsABridge has a bridge that runs, with its configuration.
func (s *shell) runsABridge() {
	s.configures(testenv.Redis(s.t))
	s.start("bridge run --config bridge.yaml")
}

// takesDeclarations has one by whose API queues may be declared.
func (s *shell) takesDeclarations() {
	s.configures(testenv.Redis(s.t))
	text, err := os.ReadFile(filepath.Join(s.dir, "bridge.yaml"))
	require.NoError(s.t, err)
	s.write("bridge.yaml", string(text)+"queue_files: {api: {prefix: payments-}}\n")
	s.start("bridge run --config bridge.yaml")
}

// runsAtItsPort is for a page whose own configuration takes the place of the bridge's: that is asked all the same.
func (s *shell) runsAtItsPort() {
	s.runsABridge()
	s.run("export DELAYBRIDGE__ADMIN__LISTEN=127.0.0.1:" + s.ports["8080"])
}

// TestPages types the commands of all pages.
func TestPages(t *testing.T) {
	t.Parallel()
	names, count := map[string]bool{}, 0
	for _, p := range readPages(t) {
		names[p.name] = true
		typed, left := p.commands(t), map[string]bool{}
		for _, listed := range untyped[p.name] {
			for _, name := range listed {
				left[name] = true
			}
		}
		isListed := func(c command) bool { return left[c.name()] }
		for name := range left {
			isThere := slices.ContainsFunc(typed, func(c command) bool { return c.name() == name })
			assert.True(t, isThere, "%s has no such command any more: %s", p.name, name)
		}
		typed = slices.DeleteFunc(typed, isListed)
		count += len(typed)
		if len(typed) == 0 {
			assert.NotContains(t, worlds, p.name, "nothing is typed there")
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			if world := worlds[p.name]; world != nil {
				world(s)
			}
			for _, b := range p.blocks {
				s.save(b)
			}
			for _, c := range typed {
				s.typeIn(c)
			}
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(untyped)), slices.Collect(maps.Keys(worlds))) {
		assert.True(t, names[name], "there is no page %s any more", name)
	}
	t.Log(count, "commands are typed")
}
