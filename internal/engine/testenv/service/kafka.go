package service

import (
	"context"
	"crypto/rand"
	_ "embed" // the list of Kafka's artifacts
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed kafka-pom.xml
var kafkaPOM []byte

// A fixed id spares a run of the id generator; every broker has a folder of
// its own.
const kafkaClusterID = "ZGVsYXlicmlkZ2UtdGVzdA"

// kafkaRunner formats the storage folder where [Server.formatKafka] has not, then becomes the broker.
const kafkaRunner = `
[ -e data/meta.properties ] || "$@" kafka.tools.StorageTool format -t ` + kafkaClusterID + ` -c server.properties || exit 1
exec "$@" kafka.Kafka server.properties
`

// StartKafka runs one Kafka broker, its own controller, without automatic
// topics; extraProperties are appended to its server.properties, where the
// last of two equal keys wins.
func StartKafka(ctx context.Context, extraProperties string) (*Server, error) {
	return startKafka(ctx, extraProperties)
}

func startKafka(ctx context.Context, extraProperties string, flags ...string) (*Server, error) {
	s, err := newKafka(ctx, flags...)
	if err != nil {
		return nil, err
	}
	if err := s.reserveBus(); err != nil {
		return s.abandon(err)
	}
	return s.startKafka(ctx, 1, s.kafkaProperties()+extraProperties+"\n")
}

// StartKafkaFollower runs a second broker under the controller of a first one that
// [StartKafka] has started. Topics get replicas on it only where they are assigned
// to node 2.
func StartKafkaFollower(ctx context.Context, first *Server, extraProperties string) (*Server, error) {
	properties, err := os.ReadFile(filepath.Join(first.dir, "server.properties"))
	if err != nil {
		return nil, fmt.Errorf("read the first broker's properties: %w", err)
	}
	s, err := newKafka(ctx)
	if err != nil {
		return nil, err
	}
	return s.startKafka(ctx, 2, string(properties)+`process.roles=broker
node.id=2
listeners=PLAINTEXT://`+s.Addr()+`
advertised.listeners=PLAINTEXT://`+s.Addr()+`
log.dirs=`+filepath.Join(s.dir, "data")+"\n"+extraProperties+"\n")
}

// newKafka is a broker without its properties, with these flags of Java or with those that
// use the archive of its classes, where there is one.
func newKafka(ctx context.Context, flags ...string) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w: java", ErrMissing)
	}
	libs, err := archives(ctx, "kafka", kafkaPOM)
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(filepath.Dir(filepath.Dir(libs)), kafkaClasses)
	if len(flags) == 0 && isVersion(classes, classesVersion(java)) {
		flags = []string{"-XX:SharedArchiveFile=" + classes}
	}
	s, err := newServer(ctx, "kafka")
	if err != nil {
		return nil, err
	}
	s.url = s.Addr()
	s.argv = []string{
		"sh", "-c", kafkaRunner, "sh", java,
		// Fast to start rather than fast at its peak, and small.
		"-Xmx512m", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + filepath.Join(s.dir, "log4j2.properties"),
		"-cp", filepath.Join(libs, "*"),
	}
	s.argv = append(s.argv, flags...)
	s.ready = s.kafkaReady
	return s, nil
}

func (s *Server) startKafka(ctx context.Context, node int, properties string) (*Server, error) {
	if err := errors.Join(s.write("server.properties", properties), s.write("log4j2.properties", kafkaLogging), s.formatKafka(node)); err != nil {
		return s.abandon(fmt.Errorf("write Kafka configuration: %w", err))
	}
	return s.start(ctx)
}

// formatKafka does what Kafka's own tool does, without another run of Java. Only the tool knows what a
// controller begins with, which is the same for all: so that is kept from its first run.
func (s *Server) formatKafka(node int) error {
	root, err := Root()
	if err != nil {
		return err
	}
	begins, err := os.ReadFile(filepath.Join(root, ".cache", kafkaBegins))
	if errors.Is(err, fs.ErrNotExist) || !isVersion(filepath.Join(root, ".cache", kafkaBegins), kafkaVersion()) {
		return nil
	}
	if err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // It never fails.
	id[0] &= 0x7f           // An id that begins with a dash reads like a flag.
	return errors.Join(os.Mkdir(filepath.Join(s.dir, "data"), 0o700),
		s.write("data/meta.properties", fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", kafkaClusterID, node, base64.RawURLEncoding.EncodeToString(id[:]))),
		s.write("data/bootstrap.checkpoint", string(begins)))
}

// kafkaReady asks the log rather than the protocol, since the caller may have
// configured TLS or SASL; the line comes after the controller let the broker
// in.
func (s *Server) kafkaReady(ctx context.Context, started int64) error {
	if err := logHas(s.dir, started, "Kafka Server started"); err != nil {
		return err
	}
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	return conn.Close()
}

func (s *Server) kafkaProperties() string {
	controller := s.host.At(s.bus)
	return `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@` + controller + `
listeners=PLAINTEXT://` + s.Addr() + `,CONTROLLER://` + controller + `
advertised.listeners=PLAINTEXT://` + s.Addr() + `
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=` + filepath.Join(s.dir, "data") + `
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=10485760
num.network.threads=2
num.io.threads=2
controlled.shutdown.enable=false
`
}

const kafkaLogging = `rootLogger.level = INFO
rootLogger.appenderRefs = stdout
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n
`

func (s *Server) write(name, text string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600)
}

// kafkaClasses are the classes that a broker loads, as Java archives them: with them a broker
// starts in half of the processor time. Java makes the archive when it ends.
const kafkaClasses = "kafka-classes.jsa"

// kafkaBegins is what a broker's log of metadata begins with.
const kafkaBegins = "kafka-bootstrap.checkpoint"

// FetchKafka gets all that a broker needs, and runs one for the archive of its classes, once.
func FetchKafka(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return fmt.Errorf("%w: java", ErrMissing)
	}
	_, err = Cached(root, kafkaClasses, classesVersion(java), func(path string) error {
		return runKafka(ctx, func(*Server) error { return nil }, "-XX:ArchiveClassesAtExit="+path)
	})
	if err != nil {
		return err
	}
	_, err = Cached(root, kafkaBegins, kafkaVersion(), func(path string) error {
		return runKafka(ctx, func(s *Server) error {
			begins, err := os.ReadFile(filepath.Join(s.dir, "data", "bootstrap.checkpoint"))
			if err != nil {
				return err
			}
			return os.WriteFile(path, begins, 0o644)
		})
	})
	return err
}

// runKafka starts a broker with these flags of Java, uses and stops it.
func runKafka(ctx context.Context, use func(*Server) error, flags ...string) error {
	s, err := startKafka(ctx, "", flags...)
	if err != nil {
		return err
	}
	defer s.Close()
	return errors.Join(use(s), s.Stop())
}

// classesVersion is what an archive depends on. A program's link is the same after an upgrade.
func classesVersion(java string) string {
	program, err := filepath.EvalSymlinks(java)
	if err != nil {
		program = java
	}
	if info, err := os.Stat(program); err == nil {
		program += " " + info.ModTime().String()
	}
	return program + " " + kafkaVersion()
}

func kafkaVersion() string { return sumOf(kafkaPOM) }
