// Enforces the cluster's NetworkPolicies on one node, in the network namespace that it is started in.
package main

import (
	"flag"
	"log"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that says how to reach the API server")
	node := flag.String("node", "", "name of this node")
	flag.Parse()
	if err := enforce(*kubeconfig, *node); err != nil {
		log.Fatal(err)
	}
}

func enforce(kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	settings := options.NewKubeRouterConfig()
	settings.EnableIPv4, settings.EnableIPv6 = true, false
	settings.HostnameOverride = node
	settings.IPTablesSyncPeriod = time.Minute
	handlers, sets, err := netpol.NewIPTablesHandlers(settings)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	var setsInUse sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(
		client, settings, pods, policies, namespaces, &setsInUse, handlers, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, stop, &running)
	return nil
}
