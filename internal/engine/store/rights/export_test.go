package rights

import "slices"

// CalledByGo are the commands that the roles list as called by Go, but for what
// go-redis sends by itself, and how scripts are run.
func CalledByGo() (names []string) {
	for _, u := range uses {
		for _, name := range slices.Concat(u.data, u.connection, []string{"waitaof", "configget"}) {
			if !slices.Contains(login, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
