package inputs

import (
	"context"
	"fmt"
	"reflect"
	"strings"
)

// environmentEntrance are the variables that override keys of a file, here of a good one.
type environmentEntrance struct{}

func (environmentEntrance) name() string { return "environment" }

func (environmentEntrance) inputs(context.Context) (list []input, err error) {
	text := yamlOf(goodConfig())
	add := func(name, value string, names ...string) {
		list = append(list, input{fmt.Sprintf("%s=%.80q", name, value), append(names, name), func(context.Context) answer {
			return configAnswer(text, []string{name + "=" + value})
		}})
	}
	variable := func(path []string) string { return "DELAYBRIDGE__" + strings.ToUpper(strings.Join(path, "__")) }
	for _, l := range configLeaves() {
		for _, value := range l.badValues() {
			if text, isText := value.(string); isText && l.typ.Kind() != reflect.Slice {
				add(variable(l.path), text)
			}
		}
	}
	for _, s := range configSections() {
		if len(s) > 0 && s[0] != "tls" {
			add(variable(s), "text")
		}
		add(variable(append(s, "unknown")), "1")
	}
	for _, bad := range badSettings() {
		if text, isText := bad.value.(string); isText {
			add(variable(strings.Split(bad.path, ".")), text)
		}
	}
	for _, name := range []string{"DELAYBRIDGE__", "DELAYBRIDGE____", "DELAYBRIDGE__QUEUES__NEW__SINK", "DELAYBRIDGE__log__level", "DELAYBRIDGE__LOG_LEVEL"} {
		add(name, "1")
	}
	return list, nil
}
