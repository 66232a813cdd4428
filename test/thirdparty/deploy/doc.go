// Package deploy tests what is in the folder deploy, and docker-compose.yml: the chart is
// rendered by Helm's own engine, and each object is read strictly into the types of Kubernetes
// and held against the schema that its API server publishes; systemd itself judges the unit, and
// compose's own loader reads the services.
//
// It is a module of its own, so that their libraries are not in our go.mod.
package deploy
