// Package partition cuts the network between real processes: bridges, Redis with replicas and
// Sentinels or a Cluster, a broker, a database, and producers. Each is alone in a network
// namespace; what goes from one to another passes through a [Network], which drops, delays and
// reorders the packets of each direction for itself, so that the kernels on both sides see what
// they would see of a broken switch.
//
// A schedule is a random list of cuts from a seed. After each, all heals, and what was accepted
// must come out. One setting must lose messages: else the rig proves nothing, and it fails.
package partition
