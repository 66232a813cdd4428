package store

import "strconv"

// keys are the names of one queue's keys; no other file builds one.
type keys struct {
	layout, instances string
	shards            []shardKeys
}

type shardKeys struct {
	due, msg, claims, deadlines, attempts string
	gone, goneTTL, dead, deadMsg          string
	holder, meta, wake, settled, routes   string
}

func layoutKey(prefix, queue string) string    { return prefix + ":" + queue + ":layout" }
func instancesKey(prefix, queue string) string { return prefix + ":" + queue + ":instances" }

func newKeys(prefix, queue string, shards int) *keys {
	k := &keys{
		layout:    layoutKey(prefix, queue),
		instances: instancesKey(prefix, queue),
		shards:    make([]shardKeys, shards),
	}
	for i := range k.shards {
		k.shards[i] = newShardKeys(prefix, queue, i)
	}
	return k
}

func newShardKeys(prefix, queue string, shard int) shardKeys {
	tag := prefix + ":{" + queue + ":" + strconv.Itoa(shard) + "}:"
	return shardKeys{
		due: tag + "due", msg: tag + "msg", claims: tag + "claims", deadlines: tag + "deadlines",
		attempts: tag + "attempts", gone: tag + "gone", goneTTL: tag + "gonettl",
		dead: tag + "dead", deadMsg: tag + "deadmsg", holder: tag + "holder", meta: tag + "meta", wake: tag + "wake",
		settled: tag + "settled", routes: tag + "routes",
	}
}
