// Package power cuts the power of the machine on which Redis, NATS, PostgreSQL and the bridge
// run, again and again, and looks for what was confirmed and is gone. A killed process proves
// nothing about disks: the kernel keeps what it has written. So the servers live on a [Disk]
// that forgets what was not synced.
//
// Each trial that must lose nothing has a control beside it, with the same load and a setting
// that is known to lose: if the control loses nothing, the rig proves nothing, and the trial
// fails.
package power
