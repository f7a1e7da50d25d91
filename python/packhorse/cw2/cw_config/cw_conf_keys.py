"""The keys of experiments, by the names that programs know them by."""

# Documents that are no experiments.
SLURM = "slurm"
DEFAULT = "default"

# What an experiment says.
NAME = "name"
PATH = "path"
LOG_PATH = "log_path"
IMPORT_PATH = "import_path"
IMPORT_EXP = "import_exp"
REPS = "repetitions"
REPS_PARALL = "reps_in_parallel"
REPS_P_JOB = "reps_per_job"
PARAMS = "params"
GRID = "grid"
LIST = "list"
ABLATIVE = "ablative"

# What a repetition is told besides.
i_BASIC_PATH = "_basic_path"
i_EXP_NAME = "_experiment_name"
i_NEST_DIR = "_nested_dir"
i_DEBUG_FLAG = "_debug"
i_REP_IDX = "_rep_idx"
i_REP_LOG_PATH = "_rep_log_path"
i_IMPORT_PATH_ARCHIVE = "_import_path_archive"
i_IMPORT_EXP_ARCHIVE = "_import_exp_archive"
i_CPU_CORES = "cpu_cores"
