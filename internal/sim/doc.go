// Package sim tells whole stories of delaybridge from seeds; it has tests only.
package sim
