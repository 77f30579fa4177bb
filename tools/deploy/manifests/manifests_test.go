// Package manifests_test checks what the schemas of the Kubernetes API cannot: that
// the rendered objects fit each other, and that every container is hardened.
package manifests_test

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

type labels map[string]string

func (want labels) match(got labels) bool {
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return len(want) > 0
}

type container struct {
	Name, Image string
	Env         []struct {
		Name      string
		ValueFrom struct{ SecretKeyRef struct{ Name, Key string } }
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	LivenessProbe, ReadinessProbe, StartupProbe *probe
	Resources                                   struct{ Requests, Limits map[string]string }
	SecurityContext                             struct {
		ReadOnlyRootFilesystem   bool
		AllowPrivilegeEscalation *bool
		Capabilities             struct{ Drop []string }
	}
}

type probe struct {
	HTTPGet *struct {
		Path string
		Port any
	} `json:"httpGet"`
	GRPC *struct{ Port int } `json:"grpc"`
}

type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Selector json.RawMessage // of a Service the labels themselves, else {matchLabels}
		Ports    []struct{ TargetPort any }
		Template struct {
			Metadata struct{ Labels labels }
			Spec     struct {
				TerminationGracePeriodSeconds int
				SecurityContext               struct {
					RunAsNonRoot   bool
					SeccompProfile struct{ Type string }
				}
				Containers []container
				Volumes    []struct {
					ConfigMap struct{ Name string }
					EmptyDir  *struct{}
				}
			}
		}
	}
}

func (m manifest) selector(t *testing.T) labels {
	t.Helper()
	var s struct{ MatchLabels labels }
	if m.Kind == "Service" {
		decode(t, m.Spec.Selector, &s.MatchLabels)
	} else {
		decode(t, m.Spec.Selector, &s)
	}
	return s.MatchLabels
}

func decode(t *testing.T, from []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(from, to); err != nil {
		t.Fatal(err)
	}
}

func render(t *testing.T, dir string) []manifest {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []manifest
	for _, r := range rendered.Resources() {
		raw, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var m manifest
		decode(t, raw, &m)
		out = append(out, m)
	}
	return out
}

func TestDev(t *testing.T) {
	all := render(t, "../../../deploy/k8s/overlays/dev")
	named := map[string]manifest{}
	var workloads []manifest
	for _, m := range all {
		named[m.Kind+"/"+m.Metadata.Name] = m
		if len(m.Spec.Template.Spec.Containers) > 0 {
			workloads = append(workloads, m)
		}
	}

	t.Run("Workloads/AllAreThere", func(t *testing.T) {
		for _, want := range []string{
			"Deployment/epigraph-planner", "Deployment/epigraph-executor", "Deployment/epigraph-registry", "Deployment/epigraph-gateway",
			"StatefulSet/postgres",
		} {
			if _, ok := named[want]; !ok {
				t.Errorf("no %s", want)
			}
		}
	})

	t.Run("Upgrade/NothingIsImmutable", func(t *testing.T) {
		for _, m := range all {
			if m.Kind == "Job" || m.Kind == "Pod" {
				t.Errorf("%s/%s cannot be applied again with another image", m.Kind, m.Metadata.Name)
			}
		}
	})

	t.Run("Namespace/OnEverything", func(t *testing.T) {
		for _, m := range all {
			if m.Kind != "Namespace" && m.Metadata.Namespace != "epigraph-dev" {
				t.Errorf("%s/%s is in namespace %q", m.Kind, m.Metadata.Name, m.Metadata.Namespace)
			}
		}
	})

	for _, w := range workloads {
		t.Run(w.Kind+"/"+w.Metadata.Name, func(t *testing.T) {
			pod := w.Spec.Template.Spec
			if !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != "RuntimeDefault" || pod.TerminationGracePeriodSeconds == 0 {
				t.Errorf("the pod may run as root, or without seccomp profile or grace period")
			}
			for _, v := range pod.Volumes {
				if v.EmptyDir != nil && w.Kind == "Deployment" {
					t.Errorf("a node with a pod of it is drained only with --delete-emptydir-data")
				}
				if name := v.ConfigMap.Name; name != "" && named["ConfigMap/"+name].Kind == "" {
					t.Errorf("ConfigMap %s does not exist", name)
				}
			}
			ports := map[any]bool{}
			for _, c := range pod.Containers {
				s := c.SecurityContext
				if !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
					t.Errorf("container %s is not hardened: %+v", c.Name, s)
				}
				if c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" || c.Resources.Limits["memory"] == "" {
					t.Errorf("container %s has no resources: %+v", c.Name, c.Resources)
				}
				for _, p := range c.Ports {
					ports[p.Name], ports[float64(p.ContainerPort)], ports[p.ContainerPort] = true, true, true
				}
				for _, e := range c.Env {
					if ref := e.ValueFrom.SecretKeyRef; ref.Name != "" && named["Secret/"+ref.Name].Data[ref.Key] == "" {
						t.Errorf("container %s wants key %s of Secret %s, which does not exist", c.Name, ref.Key, ref.Name)
					}
				}
				if p := c.StartupProbe; w.Kind == "Deployment" && p != nil && (p.HTTPGet == nil || p.HTTPGet.Path != "/livez" && p.HTTPGet.Path != "/healthz") {
					t.Errorf("container %s is killed while its database is away", c.Name)
				}
				for name, p := range map[string]*probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
					switch {
					case p == nil:
						t.Errorf("container %s has no %s probe", c.Name, name)
					case p.HTTPGet != nil && !ports[p.HTTPGet.Port], p.GRPC != nil && !ports[p.GRPC.Port]:
						t.Errorf("the %s probe of container %s asks a port that is not there", name, c.Name)
					}
				}
			}
			for _, kind := range []string{"Service", "PodDisruptionBudget"} {
				other, ok := named[kind+"/"+w.Metadata.Name]
				if !ok {
					if kind == "Service" || w.Kind == "Deployment" {
						t.Errorf("no %s", kind)
					}
					continue
				}
				if !other.selector(t).match(w.Spec.Template.Metadata.Labels) {
					t.Errorf("the %s does not select the pods", kind)
				}
				for _, p := range other.Spec.Ports {
					if !ports[p.TargetPort] {
						t.Errorf("the Service sends to port %v, which is not there", p.TargetPort)
					}
				}
			}
			if !w.selector(t).match(w.Spec.Template.Metadata.Labels) {
				t.Error("the selector does not match its own pods")
			}
		})
	}
}
