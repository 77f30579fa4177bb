package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// These tests hold who says how many executors there are: the object of an autoscaler, whether the number is
// fixed or follows the load, and never the Deployment. A number that was applied in the Deployment and is
// then left out would be set back to one.

type scaledObject struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas                 *int
		MinReplicas, MaxReplicas int
		ScaleTargetRef           struct{ Kind, Name string }
		Metrics                  []struct {
			Pods struct{ Metric struct{ Name string } }
		}
		Template struct {
			Spec struct{ Containers []container }
		}
	}
	raw string
}

func renderScaled(t *testing.T, dir string) map[string]scaledObject {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]scaledObject{}
	for _, r := range rendered.Resources() {
		raw, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var o scaledObject
		decode(t, raw, &o)
		o.raw = string(raw)
		named[o.Kind+"/"+o.Metadata.Name] = o
	}
	return named
}

const executorDeployment, executorScaler = "Deployment/epigraph-executor", "HorizontalPodAutoscaler/epigraph-executor"

// installation renders the base with components, as a user's overlay does.
func installation(t *testing.T, components ...string) map[string]scaledObject {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k8s, err := filepath.Abs("../../../deploy/k8s")
	if err != nil {
		t.Fatal(err)
	}
	if k8s, err = filepath.EvalSymlinks(k8s); err != nil {
		t.Fatal(err)
	}
	if k8s, err = filepath.Rel(dir, k8s); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s/base]\ncomponents:\n", k8s)
	for _, c := range components {
		text += fmt.Sprintf("  - %s/components/%s\n", k8s, c)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return renderScaled(t, dir)
}

func TestExecutors(t *testing.T) {
	fixed, scaled := installation(t, "fixed-size"), installation(t, "autoscale")

	t.Run("Change/LeavesTheDeployment", func(t *testing.T) {
		if got, want := scaled[executorDeployment].raw, fixed[executorDeployment].raw; got == "" || got != want {
			t.Errorf("a change from a fixed number to an autoscaler changes the Deployment:\nwas %s\nis  %s", want, got)
		}
	})
	t.Run("Change/KeepsTheScaler", func(t *testing.T) {
		got, want := scaled[executorScaler].Spec, fixed[executorScaler].Spec
		if got.ScaleTargetRef != want.ScaleTargetRef || want.ScaleTargetRef.Name != "epigraph-executor" {
			t.Errorf("the autoscaler is another object, so that there is none while one is exchanged for the other: was %+v, is %+v", want, got)
		}
	})
	t.Run("Change/DropsNone", func(t *testing.T) {
		if was, is := fixed[executorScaler].Spec, scaled[executorScaler].Spec; was.MinReplicas != is.MinReplicas {
			t.Errorf("the fixed number is %d, the least number when scaled %d", was.MinReplicas, is.MinReplicas)
		}
	})
	t.Run("Fixed/IsOneNumber", func(t *testing.T) {
		if s := fixed[executorScaler].Spec; s.MinReplicas < 2 || s.MinReplicas != s.MaxReplicas {
			t.Errorf("between %d and %d, want one number that is two at least", s.MinReplicas, s.MaxReplicas)
		}
	})
	t.Run("Deployment/SaysNoNumber", func(t *testing.T) {
		for _, dir := range []string{"base", "overlays/dev", "overlays/scaled"} {
			d, ok := renderScaled(t, "../../../deploy/k8s/"+dir)[executorDeployment]
			if !ok || d.Spec.Replicas != nil {
				t.Errorf("%s has no executor, or says how many there are", dir)
			}
		}
	})
}

func TestScaled(t *testing.T) {
	named := renderScaled(t, "../../../deploy/k8s/overlays/scaled")
	scaler := named[executorScaler].Spec
	t.Run("Namespace/IsThere", func(t *testing.T) {
		if _, ok := named["Namespace/epigraph"]; !ok {
			t.Error("an apply to an empty cluster finds no namespace")
		}
	})
	t.Run("Autoscaler/OwnsTheReplicas", func(t *testing.T) {
		target, ok := named[scaler.ScaleTargetRef.Kind+"/"+scaler.ScaleTargetRef.Name]
		if !ok || target.Spec.Replicas != nil {
			t.Errorf("the target %+v does not exist, or says how many replicas it has", scaler.ScaleTargetRef)
		}
	})
	t.Run("Autoscaler/AsksForWhatTheAdapterOffers", func(t *testing.T) {
		rules, err := os.ReadFile("../../../deploy/observability/prometheus-adapter.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if metric := scaler.Metrics[0].Pods.Metric.Name; metric == "" || !strings.Contains(string(rules), "as: "+metric+"\n") {
			t.Errorf("no rule offers the metric %q", metric)
		}
	})
	t.Run("Secrets/HaveWhatContainersWant", func(t *testing.T) {
		for _, o := range named {
			for _, c := range o.Spec.Template.Spec.Containers {
				for _, e := range c.Env {
					if ref := e.ValueFrom.SecretKeyRef; ref.Name != "" && named["Secret/"+ref.Name].Data[ref.Key] == "" {
						t.Errorf("container %s of %s wants key %s of Secret %s, which does not exist", c.Name, o.Metadata.Name, ref.Key, ref.Name)
					}
				}
			}
		}
	})
}
