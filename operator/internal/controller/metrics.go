package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
)

// Metrics are the operator's own, beside controller-runtime's.
type Metrics struct {
	slicesReady, slicesDesired, restarts, degraded *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"namespace", "name"})
		registry.MustRegister(vec)
		return vec
	}
	return &Metrics{
		slicesReady:   gauge("pathwaysjob_slices_ready", "Slices of the PathwaysJob that are ready."),
		slicesDesired: gauge("pathwaysjob_slices_desired", "Slices that the PathwaysJob asks for."),
		restarts:      gauge("pathwaysjob_restarts", "How often the whole job was started again."),
		degraded:      gauge("pathwaysjob_degraded", "1 if the condition Degraded is True."),
	}
}

func (m *Metrics) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.slicesReady, m.slicesDesired, m.restarts, m.degraded}
}

func (m *Metrics) set(namespace, name string, status *v1.PathwaysJobStatus) {
	degraded := 0.0
	if meta.IsStatusConditionTrue(status.Conditions, v1.ConditionDegraded) {
		degraded = 1
	}
	m.slicesReady.WithLabelValues(namespace, name).Set(float64(status.SlicesReady))
	m.slicesDesired.WithLabelValues(namespace, name).Set(float64(status.SlicesDesired))
	m.restarts.WithLabelValues(namespace, name).Set(float64(status.Restarts))
	m.degraded.WithLabelValues(namespace, name).Set(degraded)
}

func (m *Metrics) forget(namespace, name string) {
	for _, vec := range m.all() {
		vec.DeleteLabelValues(namespace, name)
	}
}
