package grants

import "github.com/delaybridge/delaybridge/internal/config"

// RabbitMQ are the expressions of the sink's user.
func RabbitMQ(cfg *config.Config, sink string) (configure, write, read string) {
	r := resourcesOf(useOf(cfg, sink), cfg.Sinks[sink])
	return r.configure, r.write, r.read
}
