package rights

import "slices"

// CalledByGo are the commands that the roles list as called by Go, but for what
// go-redis sends by itself, and how scripts are run. CONFIG GET tells passwords: a
// client that may, asks for appendfsync, but no role lists it.
func CalledByGo() (names []string) {
	for _, u := range uses {
		for _, name := range slices.Concat(u.data, u.connection, []string{"waitaof", "info", "configget"}) {
			if !slices.Contains(login, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
