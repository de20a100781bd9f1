#include "cli/kubernetes/pathways_job.h"

#include "cli/kubernetes/install.h"
#include "cli/kubernetes/yaml.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

WorkloadRequest Headless() {
  WorkloadRequest request;
  request.name = "w1";
  request.tpu_type = "v5p-16";
  request.num_slices = 2;
  request.headless = true;
  return request;
}

TEST(ToYamlTest, BlocksListsAndEmptyOnes) {
  EXPECT_EQ(ToYaml(ordered_json::parse(R"({"b": {"c": [1, {"d": true, "e": [[2], {}]}]}, "a": [], "f": null})")),
            "b:\n"
            "  c:\n"
            "    - 1\n"
            "    - d: true\n"
            "      e:\n"
            "        - - 2\n"
            "        - {}\n"
            "a: []\n"
            "f: null\n");
}

TEST(ToYamlTest, QuotesWhatReadersCouldMistake) {
  for (const char* text :
       {"",    "yes",  "No",   "null",     "~",    "1",  "1.5", "0x10", "1e3", "2024-01-01", "12:30",
        "- a", "a: b", "a #b", "--flag=1", "key:", "*x", "&x",  "{x",   "é",   "tab\there",  "new\nline"}) {
    const std::string yaml = ToYaml(ordered_json(text));
    EXPECT_EQ(yaml, ordered_json(text).dump() + "\n") << text;
  }
  for (const char* text : {"2x2x2", "16x16", "w1", "ct5p-hightpu-4t", "jupyter/base-notebook",
                           "repo.example:5000/img:1", "gs://bucket/dir", "a=b"}) {
    EXPECT_EQ(ToYaml(ordered_json(text)), std::string(text) + "\n");
  }
}

TEST(PathwaysJobManifestTest, HeadlessIsTheDocuments) {
  WorkloadRequest request = Headless();
  request.gcs_location = "gs://bucket";
  request.max_restarts = 3;
  EXPECT_EQ(ToYaml(*PathwaysJobManifest(request)),
            R"(apiVersion: pathways-job.pathways.domain/v1
kind: PathwaysJob
metadata:
  name: w1
spec:
  maxRestarts: 3
  workers:
    - type: ct5p-hightpu-4t
      topology: 2x2x2
      numSlices: 2
  pathwaysDir: gs://bucket
  controller:
    deploymentMode: default
)");
}

TEST(PathwaysJobManifestTest, EveryFlagHasItsField) {
  WorkloadRequest request;
  request.name = "w1";
  request.tpu_type = "v6e-8";
  request.command = "start-notebook.sh --x='1 2'";
  request.docker_image = "jupyter/base-notebook";
  request.docker_name = "jax-tpu";
  request.environment = {{"A", "1"}, {"B", "x y"}};
  request.server_image = "repo/server:1";
  request.proxy_server_image = "repo/proxy_server:1";
  request.colocated_python_sidecar_image = "repo/sidecar:1";
  request.server_args = "--v=1";
  request.proxy_args = " --virtual_slices=a:1x1  --xla_dump_to=/x ";
  request.worker_args = "--v=2";
  request.priority = "high";
  request.node_kind = "tpu";
  request.elastic_slices = 1;
  request.max_slice_restarts = 5;
  request.termination_grace_period_seconds = 60;
  EXPECT_EQ(ToYaml(*PathwaysJobManifest(request)),
            R"(apiVersion: pathways-job.pathways.domain/v1
kind: PathwaysJob
metadata:
  name: w1
spec:
  workers:
    - type: ct6e-standard-4t
      topology: 2x4
      numSlices: 1
      nodeKind: tpu
      maxSliceRestarts: 5
      terminationGracePeriodSeconds: 60
      priorityClassName: high
  controller:
    deploymentMode: default
    elasticSlices: 1
    mainContainerName: jax-tpu
    template:
      spec:
        containers:
          - name: jax-tpu
            image: jupyter/base-notebook
            command:
              - sh
              - "-c"
              - "start-notebook.sh --x='1 2'"
            env:
              - name: A
                value: "1"
              - name: B
                value: "x y"
        terminationGracePeriodSeconds: 60
  customComponents:
    - componentType: pathways_server
      image: repo/server:1
      customFlags:
        - "--v=1"
    - componentType: proxy_server
      image: repo/proxy_server:1
      customFlags:
        - "--virtual_slices=a:1x1"
        - "--xla_dump_to=/x"
    - componentType: worker
      image: repo/server:1
      customFlags:
        - "--v=2"
    - componentType: colocated_python_sidecar
      image: repo/sidecar:1
)");
}

TEST(PathwaysJobManifestTest, MachineTypesOfTheTable) {
  const auto worker = [](const std::string& type) {
    WorkloadRequest request = Headless();
    request.tpu_type = type;
    const ordered_json manifest = *PathwaysJobManifest(request);
    return manifest["spec"]["workers"][0]["type"].get<std::string>() + " " +
           manifest["spec"]["workers"][0]["topology"].get<std::string>();
  };
  EXPECT_EQ(worker("v4-8"), "ct4p-hightpu-4t 2x2x1");
  EXPECT_EQ(worker("v5litepod-16"), "ct5lp-hightpu-4t 4x4");
  EXPECT_EQ(worker("ct5lp-hightpu-8t:2x4"), "ct5lp-hightpu-8t 2x4");
  EXPECT_EQ(worker("v6e-256"), "ct6e-standard-4t 16x16");
  EXPECT_EQ(worker("tpu7x-128"), "tpu7x-standard-4t 4x4x4");
}

std::string ErrorOf(const WorkloadRequest& request) {
  return std::string(PathwaysJobManifest(request).status().message());
}

TEST(PathwaysJobManifestTest, MistakesAreNamed) {
  WorkloadRequest request = Headless();
  request.name = "a-name-of-23-characters";
  EXPECT_THAT(ErrorOf(request), AllOf(HasSubstr("23 characters"), HasSubstr("22")));
  for (const char* name : {"", "Upper", "1digit", "dash-", "under_score", "dot.dot"}) {
    request.name = name;
    EXPECT_FALSE(PathwaysJobManifest(request).ok()) << name;
  }
  request = Headless();
  request.tpu_type = "v5p-12";
  EXPECT_THAT(ErrorOf(request), AllOf(HasSubstr("--tpu-type"), HasSubstr("v5p-8 v5p-16")));
  request.tpu_type = "v5litepod-1";
  EXPECT_THAT(ErrorOf(request), HasSubstr("no machine type"));
  request.tpu_type = "v5p-16,v6e-8";
  EXPECT_THAT(ErrorOf(request), HasSubstr("one type"));
  request = Headless();
  request.num_slices = 0;
  EXPECT_THAT(ErrorOf(request), HasSubstr("--num-slices"));
  request = Headless();
  request.elastic_slices = 3;
  EXPECT_THAT(ErrorOf(request), HasSubstr("--elastic-slices"));
  request = Headless();
  request.command = "python train.py";
  EXPECT_THAT(ErrorOf(request), HasSubstr("--headless"));
  request.headless = false;
  EXPECT_THAT(ErrorOf(request), HasSubstr("--docker-image"));
  request.command = "";
  EXPECT_THAT(ErrorOf(request), HasSubstr("--command"));
}

TEST(SummarizePathwaysJobTest, TheTrueConditionDecides) {
  json job = json::parse(R"({
    "metadata": {"name": "w1", "namespace": "team", "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {"workers": [{"type": "ct5p-hightpu-4t", "topology": "2x2x2", "numSlices": 2}]}})");
  WorkloadSummary summary = SummarizePathwaysJob(job);
  EXPECT_EQ(summary.phase, WorkloadPhase::kPending);
  EXPECT_EQ(summary.slices, "2 of v5p-16");
  EXPECT_EQ(absl::FormatTime(absl::RFC3339_sec, summary.created, absl::UTCTimeZone()), "2026-01-02T03:04:05+00:00");
  EXPECT_EQ(AddressInCluster(job), "grpc://w1-pathways-head-0-0.w1.team.svc:29000");
  EXPECT_THAT(InstanceTypes(job), ElementsAre("tpuv5:2x2x2", "tpuv5:2x2x2"));

  job["status"] = json::parse(R"({"slices": "1/2", "address": "grpc://elsewhere:1", "conditions": [
    {"type": "Pending", "status": "False", "message": "not pending"},
    {"type": "Running", "status": "True", "message": "pathwaysJob running: jobSet is running"},
    {"type": "Failed", "status": "False", "message": "not failed"}]})");
  summary = SummarizePathwaysJob(job);
  EXPECT_EQ(summary.phase, WorkloadPhase::kRunning);
  EXPECT_EQ(summary.ready, "1/2 slices");
  EXPECT_EQ(summary.message, "jobSet is running");
  EXPECT_EQ(AddressInCluster(job), "grpc://elsewhere:1");

  job["status"]["conditions"].push_back({{"type", "Degraded"}, {"status", "True"}, {"message", "no room on any node"}});
  EXPECT_EQ(SummarizePathwaysJob(job).message, "no room on any node");
}

TEST(SummarizePathwaysJobTest, AnObjectOfAnotherShapeIsNoCrash) {
  const json job =
      json::parse(R"({"metadata": {"name": 7}, "spec": {"workers": {}}, "status": {"conditions": [5, {}]}})");
  EXPECT_EQ(SummarizePathwaysJob(job).phase, WorkloadPhase::kPending);
  EXPECT_THAT(InstanceTypes(job), IsEmpty());
}

TEST(PodProblemsTest, SaysWhatKeepsPods) {
  const json pods = json::parse(R"({"items": [
    {"metadata": {"name": "good"}, "status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}},
    {"metadata": {"name": "young"},
     "status": {"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]}},
    {"metadata": {"name": "big"}, "status": {"conditions": [{"type": "PodScheduled", "status": "False",
      "reason": "Unschedulable", "message": "0/1 nodes are available"}]}},
    {"metadata": {"name": "head"}, "status": {"initContainerStatuses": [{"name": "pathways-rm", "state": {"waiting":
      {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\""}}}]}},
    {"metadata": {"name": "loop"}, "status": {"containerStatuses": [{"name": "c",
      "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}]}}]})");
  EXPECT_THAT(PodProblems(pods),
              ElementsAre("pod big: Unschedulable: 0/1 nodes are available",
                          "pod head, container pathways-rm: ImagePullBackOff: Back-off pulling image \"x\"",
                          "pod loop, container c: CrashLoopBackOff (its last run ended with exit code 3)"));
}

TEST(ConfiguredManifestTest, SetsImagesAndFlags) {
  InstallOptions options;
  options.version = "1.2.3";
  const std::string as_it_is = *ConfiguredManifest(kInstallManifest, options);
  EXPECT_THAT(as_it_is, AllOf(HasSubstr("image: ghcr.io/openpathways/operator:1.2.3\n"),
                              HasSubstr("- --default-version=1.2.3\n"), HasSubstr("- --default-node-kind=cpu")));
  EXPECT_THAT(as_it_is, AllOf(HasSubstr(std::string("name: ") + kOperatorDeployment),
                              HasSubstr(std::string("namespace: ") + kOperatorNamespace), HasSubstr(kPathwaysJobType)));
  options.image_repository = "reg.example:5000/p";
  options.default_node_kind = "tpu";
  EXPECT_THAT(*ConfiguredManifest(kInstallManifest, options),
              AllOf(HasSubstr("image: reg.example:5000/p/operator:1.2.3\n"),
                    HasSubstr("- --image-repository=reg.example:5000/p\n"), HasSubstr("- --default-node-kind=tpu"),
                    Not(HasSubstr("--image-repository=ghcr.io"))));
  options.default_node_kind = "gpu";
  EXPECT_FALSE(ConfiguredManifest(kInstallManifest, options).ok());
}

}  // namespace
}  // namespace openpathways::cli
