/* Shows a process that opens /proc/PID/cgroup only the line of version 2: on a machine that
 * mounts both versions Slurm would refuse to use it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int only_version_2(int file)
{
	char text[8192];
	ssize_t length = 0, count;
	int memory = memfd_create("cgroup", MFD_CLOEXEC);

	while ((count = read(file, text + length, sizeof(text) - 1 - length)) > 0)
		length += count;
	text[length] = 0;
	close(file);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "0::", 3)) {
			(void)!write(memory, line, strlen(line));
			(void)!write(memory, "\n", 1);
		}
	lseek(memory, 0, SEEK_SET);
	return memory;
}

static int filtered(const char *name, const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
	int file = next(path, flags, mode);
	size_t length = strlen(path);
	int is_it = length > 13 && !strncmp(path, "/proc/", 6) && !strcmp(path + length - 7, "/cgroup");

	return file >= 0 && is_it ? only_version_2(file) : file;
}

#define FILTERED(name)                                      \
	int name(const char *path, int flags, ...)          \
	{                                                   \
		va_list rest;                               \
		va_start(rest, flags);                      \
		mode_t mode = va_arg(rest, mode_t);         \
		va_end(rest);                               \
		return filtered(#name, path, flags, mode);  \
	}

FILTERED(open)
FILTERED(open64)
