package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A cluster is for one run of tests.
const certificateLifetime = 30 * 24 * time.Hour

// authority signs the certificates of one cluster.
type authority struct {
	folder string
	parent *x509.Certificate
	key    crypto.Signer
}

func newAuthority(folder string) (*authority, error) {
	a := &authority{folder: folder}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "test-cluster"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	var err error
	a.parent, a.key, err = a.sign("ca", template)
	return a, err
}

// server and client write NAME.crt and NAME.key. The common name is the user that the API server sees, the
// organization its group.
func (a *authority) server(name, commonName string, names []string, addresses ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		DNSNames:    names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	_, _, err := a.sign(name, template)
	return err
}

func (a *authority) client(name, commonName string, organization ...string) error {
	_, _, err := a.sign(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: organization},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

func (a *authority) sign(name string, template *x509.Certificate) (*x509.Certificate, crypto.Signer, error) {
	key, err := a.newKey(name)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = template.NotBefore.Add(certificateLifetime)
	parent, signer := a.parent, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	if err := writePEM(filepath.Join(a.folder, name+".crt"), "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

func (a *authority) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(filepath.Join(a.folder, name+".key"), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// users of the API server: file name of the certificate, user, groups.
var users = [][]string{
	{"admin", "admin", "system:masters"},
	{"controller-manager", "system:kube-controller-manager"},
	{"scheduler", "system:kube-scheduler"},
	{"kubelet", "system:node:" + nodeName, "system:nodes"},
	{"proxy", "system:kube-proxy"},
	{"coredns", "system:coredns"},
	{"load-balancer", "system:load-balancer"},
}

func (c *Cluster) writeCertificates() error {
	a, err := newAuthority(c.path("pki"))
	if err != nil {
		return err
	}
	service := "kubernetes.default.svc"
	names := []string{"localhost", "kubernetes", "kubernetes.default", service, service + "." + clusterDomain}
	if err := a.server("apiserver", "kube-apiserver", names, "127.0.0.1", c.nodeIP(), c.apiServiceIP()); err != nil {
		return err
	}
	if err := a.server("kubelet-server", nodeName, []string{nodeName}, c.nodeIP()); err != nil {
		return err
	}
	if err := a.client("apiserver-kubelet", "kube-apiserver", "system:masters"); err != nil {
		return err
	}
	if _, err := a.newKey("service-accounts"); err != nil {
		return err
	}
	for _, user := range users {
		if err := a.client(user[0], user[1], user[2:]...); err != nil {
			return err
		}
		if err := c.writeKubeconfig(user[0]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeKubeconfig(user string) error {
	config := clientcmdapi.NewConfig()
	pki := make(map[string][]byte)
	for _, file := range []string{"ca.crt", user + ".crt", user + ".key"} {
		data, err := os.ReadFile(c.path("pki", file))
		if err != nil {
			return err
		}
		pki[file] = data
	}
	config.Clusters[c.id()] = &clientcmdapi.Cluster{
		Server: "https://" + c.nodeIP() + ":6443", CertificateAuthorityData: pki["ca.crt"],
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pki[user+".crt"], ClientKeyData: pki[user+".key"],
	}
	config.Contexts[c.id()] = &clientcmdapi.Context{Cluster: c.id(), AuthInfo: user}
	config.CurrentContext = c.id()
	return clientcmd.WriteToFile(*config, c.kubeconfig(user))
}
