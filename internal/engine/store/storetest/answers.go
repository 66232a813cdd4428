package storetest

import "github.com/delaybridge/delaybridge/internal/engine/store"

// Others returns an answer of each code that none of the answers has, and one of a code that there is not.
func Others(answers map[string][]store.Answer) (others []store.Answer) {
	named := map[store.Code]bool{}
	for _, list := range answers {
		for _, a := range list {
			named[a.Code] = a.Err == nil || named[a.Code]
		}
	}
	for code := range store.EndedMaybe + 2 {
		if !named[code] {
			others = append(others, store.Answer{Code: code})
		}
	}
	return others
}
