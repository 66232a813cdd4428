package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/openapi/openapitest"
	"sigs.k8s.io/yaml"
)

// apiSchemas are what the API server publishes of its kinds: unlike the Go types they say which fields
// must be there. client-go has those of core and apps; other kinds are read into the types alone.
var apiSchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	groups, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		return nil, err
	}
	compiler, schemas := jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
	for _, group := range []struct {
		path, name, version string
		kinds               []string
	}{
		{"api/v1", "core.v1", "v1", []string{"ConfigMap", "Pod", "Service", "ServiceAccount"}},
		{"apis/apps/v1", "apps.v1", "apps/v1", []string{"Deployment"}},
	} {
		text, err := groups[group.path].Schema("application/json")
		if err != nil {
			return nil, err
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if err := compiler.AddResource("kubernetes:///"+group.path, document); err != nil {
			return nil, err
		}
		for _, kind := range group.kinds {
			at := "kubernetes:///" + group.path + "#/components/schemas/io.k8s.api." + group.name + "." + kind
			if schemas[group.version+" "+kind], err = compiler.Compile(at); err != nil {
				return nil, err
			}
		}
	}
	return schemas, nil
})

// assertInSchema holds an object against the schema of its kind ("apps/v1 Deployment"), where there is one.
func assertInSchema(t *testing.T, kind, text string) {
	t.Helper()
	schemas, err := apiSchemas()
	require.NoError(t, err)
	if schemas[kind] == nil {
		return
	}
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	object, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	assert.NoError(t, schemas[kind].Validate(object), kind)
}

// TestSchemasOfKubernetes: they find what the types cannot.
func TestSchemasOfKubernetes(t *testing.T) {
	t.Parallel()
	schemas, err := apiSchemas()
	require.NoError(t, err)
	for kind, text := range map[string]string{
		"v1 Pod":             `{"spec": {"containers": [{"name": "bridge", "ports": [{"name": "probes"}]}]}}`,
		"apps/v1 Deployment": `{"spec": {"template": {}}}`,
	} {
		object, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		assert.ErrorContains(t, schemas[kind].Validate(object), "missing propert", kind)
	}
}

// TestValuesSchemaIsClosed: wherever it names values it refuses others.
func TestValuesSchemaIsClosed(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(chartDir + "/values.schema.json")
	require.NoError(t, err)
	var schema any
	require.NoError(t, json.Unmarshal(content, &schema))
	assertClosed(t, "values", schema)
}

// conditions of a schema say more of what it names elsewhere.
var conditions = map[string]bool{"allOf": true, "if": true, "then": true, "else": true, "not": true}

func assertClosed(t *testing.T, path string, schema any) {
	t.Helper()
	switch schema := schema.(type) {
	case []any:
		for _, element := range schema {
			assertClosed(t, path, element)
		}
	case map[string]any:
		if _, ok := schema["properties"].(map[string]any); ok {
			assert.Equal(t, false, schema["additionalProperties"], path)
		}
		for key, value := range schema {
			if !conditions[key] {
				assertClosed(t, path+"."+key, value)
			}
		}
	}
}
